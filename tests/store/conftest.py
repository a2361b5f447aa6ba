import pytest

pytest.register_assert_rewrite("forewarn.testing.store_contract")
