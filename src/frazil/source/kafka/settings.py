"""Client settings in one place: what the user may say, what frazil prefers, what correctness rests on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from frazil.errors import ConfigError
from frazil.pipeline.secrets import mask

Client = TypeVar("Client")

_NOT_YOURS = {
    "auto.commit.enable": "offsets are committed only once the table holds their records",
    "auto.offset.reset": "an offset that is gone must stop the pipeline; see starting_offsets",
    "allow.auto.create.topics": "a missing topic must be an error",
    "enable.auto.commit": "offsets are committed only once the table holds their records",
    "enable.auto.offset.store": "offsets are committed only once the table holds their records",
    "enable.partition.eof": "the end of a span is recognised by it",
    "error_cb": "frazil listens there itself",
    "group.id": "the group is named by source.group_id",
    "isolation.level": "records of aborted transactions must not reach the table",
}
"""Settings that correctness rests on, and why each is fixed."""

_FIXED = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
}

_PREFERRED = {
    "client.id": "frazil",
    # What goes wrong arrives through error_cb and becomes part of our own messages.
    "log_level": "2",
    # librdkafka waits up to ten seconds before it tries a broker again that was gone for a while.
    "reconnect.backoff.max.ms": "1000",
}

_PREFERRED_FOR_READING = {
    # A full queue makes librdkafka pause its fetches, by default for a whole second.
    "fetch.queue.backoff.ms": "2",
    # Bounds a worker's memory; a larger queue is not faster (measured).
    "queued.max.messages.kbytes": "16384",
    # A fetch that waits at the end of a log delays the end of a slice and the first fetch of the next one.
    "fetch.wait.max.ms": "10",
}

_FAMILIAR = (
    "bootstrap.servers",
    "broker.address.family",
    "broker.address.ttl",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "debug",
    "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "log_level",
    "max.partition.fetch.bytes",
    "message.max.bytes",
    "metadata.max.age.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
)
"""Names people mean; librdkafka itself knows many more and has the last word."""

OnError = Callable[[KafkaError], None]


def planning_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """For the driver's admin client."""
    _refuse_fixed(kafka)
    return {**_PREFERRED, **kafka}


def reading_settings(kafka: Mapping[str, str], group_id: str) -> dict[str, str]:
    """For a worker's consumer."""
    _refuse_fixed(kafka)
    return {**_PREFERRED, **_PREFERRED_FOR_READING, **kafka, **_FIXED, "group.id": group_id}


def open_admin(settings: Mapping[str, str], on_error: OnError) -> AdminClient:
    return _open(AdminClient, settings, on_error)


def open_consumer(settings: Mapping[str, str], on_error: OnError) -> Consumer:
    return _open(Consumer, settings, on_error)


def _open(kind: Callable[[dict[str, Any]], Client], settings: Mapping[str, str], on_error: OnError) -> Client:
    try:
        return kind({**settings, "error_cb": on_error})
    except KafkaException as error:
        words = error.args[0].str()
    except (TypeError, ValueError) as error:
        words = str(error)
    raise ConfigError(f"source.kafka: librdkafka says: {mask(words)}", _nearest(words)) from None


def _refuse_fixed(kafka: Mapping[str, str]) -> None:
    for key in sorted(kafka):
        if key in _NOT_YOURS:
            raise ConfigError(
                f'source.kafka."{key}" cannot be set: {_NOT_YOURS[key]}', "take it out of the pipeline file"
            )


def _nearest(words: str) -> str:
    unknown = re.search(r'No such configuration property: "([^"]+)"', words)
    near = difflib.get_close_matches(unknown[1], _FAMILIAR, n=1) if unknown else []
    return f'did you mean "{near[0]}"?' if near else ""
