import inspect
import json
from dataclasses import fields, replace

import pytest

from vrnet import BadInput, register_images
from vrnet.app.register import Register
from vrnet.registration.options import RegistrationOptions

NAMES = [field.name for field in fields(RegistrationOptions)]


def test_every_option_is_an_argument_in_python_with_the_same_default():
    arguments = inspect.signature(register_images).parameters
    assert {name: arguments[name].default for name in NAMES} == RegistrationOptions().as_json()


def test_every_option_is_one_of_the_command_line_with_its_meaning(vrnet):
    status, out, _ = vrnet("register", "--help")
    assert status == 0
    assert [name for name in NAMES if f"--{name.replace('_', '-')}" not in out] == []
    assert not {field.name for field in fields(Register)} & set(NAMES)


def test_options_are_plain_values_that_json_keeps():
    options = RegistrationOptions(affine="rigid", slices="each", match_intensities=True, folds="keep", device="cpu")
    assert RegistrationOptions(**json.loads(json.dumps(options.as_json()))) == options


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["maybe", None, 1, 0.0, [], "True"])
def test_a_value_that_is_no_choice_is_bad_input_that_lists_the_choices(name, value, as_users_run):
    with pytest.raises(BadInput, match=f"{name} is .*: give .* or ") as raised:
        replace(RegistrationOptions(), **{name: value})
    assert repr(value) in str(raised.value)
