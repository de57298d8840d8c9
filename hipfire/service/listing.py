"""The models that are here, as clients see them."""

import attrs

from hipfire.catalog.details import Details, read_details
from hipfire.catalog.store import Listing
from hipfire.errors import ModelFileError, ModelNotFound
from hipfire.service.residency import LoadedModel


@attrs.frozen(kw_only=True)
class ModelEntry:
    """`context_length` is what a loaded model holds, else what the model was trained for; 0 where nobody says."""

    id: str
    modified_s: int
    architecture: str
    quant: str
    nbytes: int
    context_length: int
    is_loaded: bool


def list_models(listings: list[Listing], resident: LoadedModel | None) -> list[ModelEntry]:
    """The usable ones, the loaded one first, also where it was loaded by its path. Reads files."""
    loaded = _loaded_entry(resident, listings) if resident is not None else None
    others = [
        _entry(listing, listing.details)
        for listing in listings
        if listing.details is not None and (resident is None or listing.model.tag != resident.model.tag)
    ]
    return [loaded, *others] if loaded is not None else others


def _loaded_entry(resident: LoadedModel, listings: list[Listing]) -> ModelEntry | None:
    for listing in listings:
        if listing.model.tag == resident.model.tag and listing.details is not None:
            entry = _entry(listing, listing.details)
            break
    else:
        try:
            modified_s = int(resident.model.path.stat().st_mtime)
            details = read_details(resident.model.path)
        except (ModelFileError, ModelNotFound, OSError):
            # Removed since it was loaded.
            return None
        entry = _entry(Listing(model=resident.model, details=details, problem=None, modified_s=modified_s), details)
    return attrs.evolve(entry, is_loaded=True, context_length=resident.engine.context_length)


def _entry(listing: Listing, details: Details) -> ModelEntry:
    return ModelEntry(
        id=listing.model.tag,
        modified_s=listing.modified_s,
        architecture=details.architecture,
        quant=details.quant,
        nbytes=details.nbytes,
        context_length=details.context_length,
        is_loaded=False,
    )
