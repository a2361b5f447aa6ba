"""Properties of VMs and their addresses: API types that are derived from `core/vm.py`.

A new property of a VM needs no change here. Type checkers read the fields from the stub beside this module, which
`tests/api/v1` generates with --rewrite.
"""

from typing import Annotated

import msgspec

from forewarn.api.v1.common import Request, Response
from forewarn.api.v1.derived_types import DerivedTypes, Form
from forewarn.core.text import schema_pattern
from forewarn.core.vm import IPV4_PATTERN, IPV6_CHARACTERS, Address, Traits, Vm

_NewIp = Annotated[
    str, msgspec.Meta(max_length=45, extra_json_schema=schema_pattern(f"{IPV4_PATTERN}|{IPV6_CHARACTERS}"))
]
_OWN_FORMS = {
    # An address of an older record can have a zone index, and be longer.
    (Address, "ip"): Form(_NewIp, lambda ip: ip, lambda ip, _: ip),
}

REQUESTS = DerivedTypes(
    Request, {Vm: "NewVm", Traits: "NewTraits", Address: "NewAddress"}, _OWN_FORMS, has_descriptions=False
)
CHANGES = DerivedTypes(Request, {Traits: "ChangedTraits"}, {}, is_change=True, has_descriptions=False)
RESPONSES = DerivedTypes(Response, {Traits: "TraitsView", Address: "AddressView"}, {}, has_descriptions=False)

NewAddress = REQUESTS.derive(Address)
NewTraits = REQUESTS.derive(Traits)
ChangedTraits = CHANGES.derive(Traits)
