"""The leaves by which products read the units of each group."""

from __future__ import annotations

from jaxarch.structure._groups import Groups
from jaxarch.structure._products import find_products, summed_axes


def readers(groups: Groups) -> dict[str, dict[str, None]]:
    """Return, by group name, the paths of the leaves that products sum over its units with."""
    names = {atom: name for name, atom in groups._atoms.items()}
    found: dict[str, dict[str, None]] = {}
    for product in find_products(groups._program, dict.fromkeys(groups._leaves)).found:
        if (place := product.activation) is None:
            continue
        factor = product.factors[1 - place]
        assert factor is not None
        read = product.step.inputs[place]
        atoms = {atom for axis in summed_axes(product.step, place) for atom in read[axis].atoms()}
        for name in (names[atom] for atom in atoms if atom in names):
            found.setdefault(name, {}).update(dict.fromkeys(factor.paths))
    return found
