"""Ways to bind a node's GPUs to a Pod, and why not."""

from typing import NamedTuple

from closeknit.api.trainingjob import BindingPolicy
from closeknit.api.trainingjob_status import Binding
from closeknit.cluster.forest.group import Group
from closeknit.placement.candidates.offer import Offer, Terms
from closeknit.placement.gpusets.masks import mask_of, positions_of
from closeknit.placement.gpusets.set_value import SetCriteria


class Seat(NamedTuple):
    """The binding of a share of one size on a node."""

    binding: Binding
    only: int | None
    """The one possible set; None where any set of the pool can be bound."""


UNTOLD = "free where nobody knows which GPUs other Pods hold"
BY_DRA = Seat(Binding.DRA, None)


def seat(terms: Terms, ask: SetCriteria, policy: BindingPolicy) -> Seat | None:
    """The binding of a share; None where it cannot be bound, whatever is free."""
    if ask.gpus > terms.pool.bit_count() - terms.unnamed:
        return None
    if terms.dra:
        return BY_DRA if policy in (BindingPolicy.AUTO, BindingPolicy.DRA) else None
    every = terms.sets.facts.every
    if (
        policy in (BindingPolicy.AUTO, BindingPolicy.WHOLE_NODE)
        and terms.whole
        and terms.pool == every
        and ask.gpus == every.bit_count()
    ):
        return Seat(Binding.WHOLE_NODE, every)
    if policy not in (BindingPolicy.AUTO, BindingPolicy.BEST_EFFORT) or terms.pool != terms.free:
        return None
    if ask.gpus > terms.part:
        return None
    if terms.is_shared:
        return Seat(Binding.BEST_EFFORT, mask_of(positions_of(terms.free)[:1]))
    # The plugin picks. Without the job's word that is good only where it cannot pick badly, or is known to pick well;
    # and with it no pick can be foreseen where the GPUs of other Pods are unknown.
    if (policy is BindingPolicy.AUTO or terms.unnamed) and not _is_sure(terms, ask):
        return None
    free = mask_of(positions_of(terms.free)[: terms.free_gpus])
    picks = terms.sets.facts.picks if terms.is_foreseen else None
    picked = None if picks is None else picks.pick(free, ask.gpus)
    first = mask_of(positions_of(free)[: ask.gpus]) if picked is None else picked.first
    return Seat(Binding.BEST_EFFORT, first)


def _is_sure(terms: Terms, ask: SetCriteria) -> bool:
    """Whether all that the plugin may give is worth the same, and is a candidate: whichever GPUs Pods with unknown
    ones have, and whichever are left."""
    if terms.beyond:
        return False
    sets = terms.sets
    if sets.is_indifferent(terms.given_from, ask):
        return True
    return terms.is_foreseen and sets.is_foreseen(terms.free, terms.guessed, terms.unnamed, ask)


def bindable(offer: Offer, policy: BindingPolicy) -> int:
    """The most GPUs of a node for one Pod now."""
    return next((size for size in range(offer.gpus, 0, -1) if seat(offer.terms, SetCriteria(size), policy)), 0)


def is_left_to_plugin(offer: Offer, policy: BindingPolicy, gpus: int) -> bool:
    """Whether a node has GPUs for a Pod of so many, but a device plugin chooses, and could choose badly."""
    terms = offer.terms
    return (
        policy is BindingPolicy.AUTO
        and not (terms.dra or terms.unnamed)
        and terms.part > 1
        and not seat(terms, SetCriteria(min(gpus, terms.part)), policy)
    )


def is_untold(offer: Offer, policy: BindingPolicy, gpus: int) -> bool:
    """Whether a node has GPUs for a Pod of so many, but unknown which ones, and the Pod could get some that fit."""
    terms = offer.terms
    return terms.unnamed > 0 and terms.part > 1 and not seat(terms, SetCriteria(min(gpus, terms.part)), policy)


def unbound(group: Group, policy: BindingPolicy, *, allow_shared: bool) -> str:
    """Why free GPUs of a node cannot be bound."""
    if policy is BindingPolicy.DRA:
        return "free without DRA"
    if group.dra:
        return f"free for DRA, not for binding {policy}"
    if group.plugin is None:
        return "free that nothing offers"
    if group.plugin.is_replicated and allow_shared:
        return "shared by a device plugin, of which each Pod may have one"
    if group.plugin.shared:
        return "shared by a device plugin"
    if policy is BindingPolicy.WHOLE_NODE:
        return "free on nodes that are not whole"
    if group.plugin.unnamed:
        return UNTOLD
    if group.plugin.free < group.free.bit_count():
        return "free that the device plugin does not offer"
    return "free that a device plugin would pick from"
