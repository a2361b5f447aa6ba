"""Reading what operators send: exactly what is described, without the conversions that query texts need."""

from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import ValidationException


class StrictRequest(Request[Any, Any, Any]):
    """A request whose JSON body is read as the type that its handler takes: 1 is not true, and "null" is a text."""

    async def json(self) -> Any:
        """Return the body as the handler's type."""
        field = self.route_handler.parsed_data_field
        try:
            return msgspec.json.decode(await self.body(), type=Any if field is None else field.annotation)
        except msgspec.MsgspecError as error:
            raise ValidationException(f"{error} (what is allowed: /openapi.json)") from error
