"""All mutations, by component."""

from __future__ import annotations

from typing import Final

from tests.mutations.cleaning import CLEAN_UP
from tests.mutations.iceberg import DELETES, MANIFESTS, MAPPING
from tests.mutations.syncing import PLAN, PUBLISH
from tests.mutations.writing import CDC, WAP

MUTATIONS: Final = (*MAPPING, *MANIFESTS, *DELETES, *PLAN, *PUBLISH, *CLEAN_UP, *WAP, *CDC)
