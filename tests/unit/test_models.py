"""Models of pydantic as payload types: alone, within other types, in unions, and without pydantic by their methods."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from delayq.errors import PayloadError, UndecodableError
from delayq.values.codec import JsonCodec


class User(BaseModel):
    name: str
    born: datetime | None = None


class Mail(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)
    kind: Literal["mail"] = "mail"
    to: User
    sent_at: datetime = Field(default=datetime(2033, 5, 18, tzinfo=UTC), alias="sentAt")
    weight: float = 1.0


class Letter(BaseModel):
    kind: Literal["letter"] = "letter"
    text: str


class Numbers(RootModel[list[int]]):
    pass


class Envelope(msgspec.Struct):
    user: User
    stamps: int


ADA = User(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC))


@pytest.mark.parametrize(
    ("payload_type", "payload"),
    [
        (User, ADA),
        (Mail, Mail(to=ADA)),
        (Numbers, Numbers([1, 2])),
        (list[User], [ADA, ADA]),
        (dict[str, User], {"a": ADA}),
        (User | None, ADA),
        (User | None, None),
        (Annotated[User, "known"], ADA),
        (Envelope, Envelope(ADA, 3)),
        (Mail | Letter, Mail(to=ADA)),
        (Mail | Letter, Letter(text="hello")),
        (list[Mail | Letter], [Letter(text="hello"), Mail(to=ADA)]),
        (Annotated[Mail | Letter, Field(discriminator="kind")], Letter(text="hello")),
        (Mail | Letter | None, None),
    ],
    ids=repr,
)
def test_models_are_encoded_and_decoded(payload_type: Any, payload: Any) -> None:
    codec = JsonCodec(payload_type)
    stored = codec.encode(payload)
    assert codec.decode(stored) == payload
    json.loads(stored)


def test_models_are_stored_as_plain_json_by_their_aliases() -> None:
    assert json.loads(JsonCodec(Mail).encode(Mail(to=ADA))) == {
        "kind": "mail",
        "to": {"name": "Ada", "born": "1815-12-10T00:00:00Z"},
        "sentAt": "2033-05-18T00:00:00Z",
        "weight": 1.0,
    }


def test_models_are_not_sent_as_objects_without_a_word() -> None:
    with pytest.raises(PayloadError, match=r"a User would come back as dict: .*payload_type"):
        JsonCodec().encode({"user": ADA})


@pytest.mark.parametrize(
    ("payload_type", "payload"),
    [
        (User, {"name": "Ada"}),
        (User, Letter(text="hello")),
        (User, User.model_construct(name=5)),
        (list[User], [Letter(text="hello")]),
        (list[User], ADA),
        (Mail | Letter, {"text": "hello"}),
        (Mail | Letter, ADA),
        (Mail, Mail.model_construct(to=ADA, sent_at=datetime(2033, 5, 18, tzinfo=UTC), weight=math.nan)),
    ],
    ids=repr,
)
def test_what_would_not_be_decoded_is_refused_when_sent(payload_type: Any, payload: Any) -> None:
    with pytest.raises(PayloadError):
        JsonCodec(payload_type).encode(payload)


class First(BaseModel):
    name: str


class Second(BaseModel):
    name: str


def test_payload_that_would_be_decoded_as_another_model_is_refused_when_sent() -> None:
    codec = JsonCodec(First | Second)
    assert codec.decode(codec.encode(First(name="Ada"))) == First(name="Ada")
    with pytest.raises(PayloadError, match="a Second would come back as First"):
        codec.encode(Second(name="Ada"))


@pytest.mark.parametrize(
    ("payload_type", "stored"),
    [
        (User, b'{"name": 5}'),
        (User, b'{"name": "Ada", "born": "s3cret"}'),
        (User, b"[]"),
        (User, b"not json"),
        (User, b"\xff"),
        (list[User], b'[{"name": "Ada"}, {"name": ["s3cret"]}]'),
        (dict[str, User], b'{"s3cret": {"name": 5}}'),
        (Mail | Letter, b'{"kind": "s3cret"}'),
        (Annotated[Mail | Letter, Field(discriminator="kind")], b'{"kind": "s3cret"}'),
    ],
)
def test_wrong_payload_is_undecodable_and_not_quoted(payload_type: Any, stored: bytes) -> None:
    with pytest.raises(UndecodableError) as error:
        JsonCodec(payload_type).decode(stored)
    assert "s3cret" not in str(error.value)


def test_error_names_the_first_wrong_field_and_its_rule() -> None:
    with pytest.raises(UndecodableError, match=r"^undecodable: not a valid User: string_type in name$"):
        JsonCodec(User).decode(b'{"name": 5}')


class Homemade:
    """Has the methods of a model, and nothing of pydantic."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Homemade) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    @classmethod
    def model_validate_json(cls, data: bytes) -> Homemade:
        value = json.loads(data)
        if not isinstance(value, int):
            raise ValueError("s3cret")  # noqa: TRY004 - as pydantic does
        return cls(value)

    def model_dump(self, **_: Any) -> int:
        return self.n


class Unlike:
    pass


@pytest.mark.parametrize("payload_type", [Homemade, list[Homemade], Homemade | None])
def test_models_are_known_by_their_methods(payload_type: Any) -> None:
    payload: Any = [Homemade(1)] if payload_type == list[Homemade] else Homemade(1)
    codec = JsonCodec(payload_type)
    assert codec.decode(codec.encode(payload)) == payload
    with pytest.raises(UndecodableError) as error:
        codec.decode(b'["text"]')
    assert "s3cret" not in str(error.value)


def test_other_objects_are_refused() -> None:
    with pytest.raises(PayloadError):
        JsonCodec().encode(Unlike())
    with pytest.raises(PayloadError):
        JsonCodec(Unlike).encode(Unlike())
