package frazil;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Writes a version of a Delta table on the condition that it is not there, which S3 itself decides. */
public class ConditionalLogStore extends HadoopFileSystemLogStore {

  public ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append((String) actions.next()).append('\n');
    }
    FileSystem files = path.getFileSystem(conf);
    FSDataOutputStreamBuilder file = files.createFile(path);
    file.overwrite(overwrite.booleanValue());
    if (!overwrite.booleanValue()) {
      file.must("fs.option.create.conditional.overwrite", "true");
    }
    try {
      OutputStream stream = (OutputStream) file.build();
      stream.write(lines.toString().getBytes(StandardCharsets.UTF_8));
      stream.close();
    } catch (IOException failure) {
      // Also where our own write landed and its answer was lost: whoever is told so looks what is there.
      if (!overwrite.booleanValue() && files.exists(path)) {
        throw new FileAlreadyExistsException(path.toString());
      }
      throw failure;
    }
  }

  public Boolean isPartialWriteVisible(Path path, Configuration conf) {
    return Boolean.FALSE;
  }
}
