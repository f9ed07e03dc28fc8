"""What the shipped base weights get added to a chat request."""

import msgspec
import pytest

from router.upstreams.local.template import MAX_TOKENS, STOP, complete


def completed(**fields: object) -> dict[str, object]:
    answer: dict[str, object] = msgspec.json.decode(complete(msgspec.json.encode(fields)))
    return answer


def test_a_request_without_a_stop_gets_the_turn_stop_a_length_and_the_steadiest_choice() -> None:
    assert completed(messages=[]) == {"messages": [], "stop": [STOP], "max_tokens": MAX_TOKENS, "temperature": 0.0}


@pytest.mark.parametrize(
    ("given", "sent"),
    [(None, [STOP]), ("", [STOP]), ("END", ["END", STOP]), (["a", "b"], ["a", "b", STOP]), ([], [STOP])],
)
def test_the_clients_own_stop_strings_stand_beside_the_turn_stop(given: object, sent: object) -> None:
    assert completed(stop=given)["stop"] == sent


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_a_length_that_the_client_chose_is_kept_and_no_other_is_added(name: str) -> None:
    sent = completed(**{name: 7})
    assert {key: value for key, value in sent.items() if "tokens" in key or key == "n_predict"} == {name: 7}


def test_a_temperature_that_the_client_chose_is_kept() -> None:
    assert completed(temperature=0.7)["temperature"] == 0.7


def test_a_stop_of_the_wrong_type_is_left_for_the_server_to_refuse() -> None:
    assert completed(stop=5)["stop"] == 5


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff"])
def test_a_body_that_is_no_json_object_goes_on_as_it_came(body: bytes) -> None:
    assert complete(body) == body
