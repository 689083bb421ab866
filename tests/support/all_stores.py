"""A FileIO of PyIceberg's over the stores of a whole registry, with which tests write tables on `main` whose files
lie anywhere.

PyIceberg's own takes one account a scheme, and none of its two reaches every scheme.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from sterna.config.secrets import environment_secrets
from sterna.storage.objects import Objects


def all_stores(objects: Objects) -> dict[str, str]:
    """Return the properties with which a catalog of PyIceberg uses it.

    Credentials come from this process's environment.
    """
    return {"py-io-impl": f"{__name__}.AllStores", "sterna.spec": json.dumps(objects.spec())}


class AllStores(FileIO):
    """Reads and writes through sterna's own clients."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self.objects = Objects.from_spec(json.loads(properties["sterna.spec"]), environment_secrets())

    def new_input(self, location: str) -> InputFile:
        return _File(self.objects, location)

    def new_output(self, location: str) -> OutputFile:
        return _File(self.objects, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError("tests delete nothing of main's through this")


class _File(InputFile, OutputFile):
    def __init__(self, objects: Objects, uri: str) -> None:
        super().__init__(uri)
        self.objects = objects

    def __len__(self) -> int:
        size = self.objects.size(self.location)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self.objects.size(self.location) is not None

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self.objects.read(self.location))

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Sink(self.objects, self.location)

    def to_input_file(self) -> InputFile:
        return self


@dataclass
class _Sink(io.BytesIO):
    """What is written becomes an object when it is closed."""

    objects: Objects
    uri: str

    def close(self) -> None:
        if not self.closed:
            self.objects.write_new(self.uri, self.getvalue())
        super().close()
