"""A path in any of Hadoop's file systems, with what checkpoints need of a path.

Spark writes checkpoints by Hadoop's file systems, and the engine reads them where Spark wrote them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession


class HadoopPath:
    """A path such as `hdfs://namenode/trilithon`, in the file system that its scheme names."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - Hadoop is the JVM's
        self._jvm = jvm
        self._configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        with _as_os_errors(uri):
            path = jvm.org.apache.hadoop.fs.Path(uri)
            self._files = path.getFileSystem(self._configuration)
            self._path = path.makeQualified(self._files.getUri(), self._files.getWorkingDirectory())

    def __str__(self) -> str:
        return str(self._path.toString())

    @property
    def name(self) -> str:
        return str(self._path.getName())

    def __truediv__(self, name: str, /) -> Self:
        return self._at(self._jvm.org.apache.hadoop.fs.Path(self._path, name))

    def _at(self, path: Any) -> Self:
        other = object.__new__(type(self))
        other._jvm, other._configuration = self._jvm, self._configuration
        other._files, other._path = self._files, path
        return other

    def with_name(self, name: str, /) -> Self:
        return self._at(self._jvm.org.apache.hadoop.fs.Path(self._path.getParent(), name))

    def exists(self) -> bool:
        with _as_os_errors(self):
            return bool(self._files.exists(self._path))

    def is_dir(self) -> bool:
        try:
            with _as_os_errors(self):
                return bool(self._files.getFileStatus(self._path).isDirectory())
        except FileNotFoundError:
            return False

    def iterdir(self) -> Iterator[Self]:
        with _as_os_errors(self):
            listed = self._files.listStatus(self._path)
        return iter([self._at(status.getPath()) for status in listed])

    def read_text(self, encoding: str, /) -> str:
        with _as_os_errors(self):
            stream = self._files.open(self._path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, encoding))
            finally:
                stream.close()

    def write_text(self, text: str, encoding: str, /) -> int:
        with _as_os_errors(self):
            stream = self._files.create(self._path, True)
            try:
                stream.write(bytearray(text.encode(encoding)))
            finally:
                stream.close()
        return len(text)

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        """Always with parents, and without complaint if it exists: Hadoop knows no other way."""
        del parents, exist_ok
        with _as_os_errors(self):
            self._files.mkdirs(self._path)

    def unlink(self, *, missing_ok: bool) -> None:
        with _as_os_errors(self):
            if not self._files.delete(self._path, False) and not missing_ok:
                raise FileNotFoundError(str(self))

    def rename(self, target: Self, /) -> object:
        # Hadoop would move it into a folder that is there.
        if target.exists():
            raise FileExistsError(str(target))
        with _as_os_errors(self):
            if not self._files.rename(self._path, target._path):
                raise OSError(f"{self} cannot be renamed to {target}.")
        return target

    def copy_tree(self, target: Self, /) -> None:
        if target.exists():
            raise FileExistsError(str(target))
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        places = (self._files, self._path, target._files, target._path)
        with _as_os_errors(self):
            # The source stays, and nothing is there to be overwritten.
            if not copy(*places, False, False, self._configuration):
                raise OSError(f"{self} cannot be copied to {target}.")

    def delete_tree(self) -> None:
        with _as_os_errors(self):
            self._files.delete(self._path, True)

    def holds(self, path: Self, /) -> bool:
        """By its name: links are no matter of Hadoop's."""
        return str(path).startswith(f"{str(self).rstrip('/')}/")


@contextmanager
def _as_os_errors(path: object) -> Iterator[None]:
    """Raises what Java throws as the errors that Python's own files raise."""
    try:
        yield
    except Py4JJavaError as error:
        thrown = error.java_exception
        kind = FileNotFoundError if "FileNotFound" in thrown.getClass().getName() else OSError
        raise kind(f"{path}: {thrown.getMessage()}") from error
    except Py4JError as error:
        raise OSError(f"{path}: {error}") from error
