"""What librdkafka complains about, in frazil's words.

librdkafka reports trouble with brokers through a callback, while a request simply goes unanswered.
`Complaints` remembers the last one, so that an error can say why nobody answered, and so that refused
credentials stop the pipeline instead of being offered again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from frazil.errors import ConfigError, FrazilError, SourceUnavailable

_AUTHENTICATION_PATIENCE_S = 2.0
"""One broker that refuses us does not count while another still answers."""

_BAD_CREDENTIALS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


class Complaints:
    """What one client has complained about since its last success."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._brokers = settings["bootstrap.servers"]
        self._identity = _describe_identity(settings)
        self._last: KafkaError | None = None
        self._refusal: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """The client's error callback."""
        if error.code() in _BAD_CREDENTIALS:
            self._refusal = error
        elif error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
            # That all brokers are down says less than why the last of them was.
            self._last = error

    def forget(self) -> None:
        """All is well again."""
        self._last = self._refusal = None

    def stop_if_refused(self, waited_s: float) -> None:
        """Raises once credentials were refused and nobody else has answered for a moment."""
        if self._refusal is not None and waited_s >= _AUTHENTICATION_PATIENCE_S:
            raise self._refused(self._refusal)

    def unanswered(self, what: str, waited_s: float) -> FrazilError:
        """The error for a request that got no answer in time."""
        if self._refusal is not None:
            return self._refused(self._refusal)
        why = f"; last trouble: {self._last.str()}" if self._last is not None else ""
        return SourceUnavailable(
            f"{what}: no answer from {self._brokers} in {waited_s:.1f} s{why}",
            'check that the brokers run and that source.kafka."bootstrap.servers" names them',
        )

    def translate(self, what: str, error: KafkaError, waited_s: float) -> FrazilError:
        """The error for a request that was answered with one."""
        if error.code() in _BAD_CREDENTIALS:
            return self._refused(error)
        if error.code() in _FORBIDDEN:
            return ConfigError(
                f"{what}: {self._brokers} does not allow it for {self._identity}: {error.str()}",
                "grant this user READ and DESCRIBE on the topics, and READ on the group",
            )
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT):
            return self.unanswered(what, waited_s)
        return SourceUnavailable(f"{what}: {self._brokers} answered: {error.str()}")

    def _refused(self, error: KafkaError) -> ConfigError:
        return ConfigError(
            f"{self._brokers} refused {self._identity}: {error.str()}",
            "check security.protocol, sasl.mechanism, sasl.username and sasl.password under source.kafka",
        )


def _describe_identity(settings: Mapping[str, str]) -> str:
    protocol = settings.get("security.protocol", "plaintext")
    if not protocol.lower().startswith("sasl"):
        return f"our {protocol} connection"
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "GSSAPI")
    user = settings.get("sasl.username")
    return f"{mechanism} authentication" + (f" of user {user}" if user else "")
