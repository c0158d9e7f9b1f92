import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from hydractl.model.encoder import ACTIVATIONS
from hydractl.model.fast import products


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("shape", [(1, 4, 9, 16), (3, 1, 1, 16), (2, 16), (1, 0, 9, 16)])
@pytest.mark.parametrize("biased", [False, True])
def test_equals_linear(shape: tuple[int, ...], biased: bool) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(24, 16), torch.randn(24) if biased else None
    with torch.inference_mode():
        for given in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
            assert_close(products.product(given, weight, bias), F.linear(x, weight, bias), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("capability", "maker", "expected"),
    [("AVX512", "AuthenticAMD", True), ("AVX512", "GenuineIntel", False), ("AVX2", "AuthenticAMD", False)],
)
def test_the_library_for_float32(capability: str, maker: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mkl.is_available", lambda: True)
    assert products.float32_by_onednn(capability, maker) == expected
    monkeypatch.setattr("torch.backends.mkl.is_available", lambda: False)
    assert products.float32_by_onednn(capability, maker)


@pytest.fixture(params=[True, False], ids=["onednn", "mkl"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both libraries in turn, whatever this machine prefers."""
    others = products.DTYPES - {torch.float32}
    monkeypatch.setattr(products, "DTYPES", others | {torch.float32} if request.param else others)


def test_torch_itself_multiplies_where_onednn_must_not() -> None:
    x, weight = torch.randn(5, 16), torch.randn(24, 16)
    with torch.inference_mode():
        assert products.by_onednn(x, weight) == (products.ONEDNN and torch.float32 in products.DTYPES)
        assert not products.by_onednn(x, torch.randn(24, 32)[:, :16])  # of such rows it makes a slow products.product
        assert not products.by_onednn(x.double(), weight.double())
        assert not products.by_onednn(x.half(), weight.half())
        assert not products.by_onednn(x.to("meta"), weight.to("meta"))  # operations are counted there
        with torch.autocast("cpu"):
            assert products.product(x, weight, None).dtype == torch.bfloat16


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_an_activation_with_its_product(activation: str) -> None:
    x, weight, bias = torch.randn(5, 16), torch.randn(24, 16), torch.randn(24)
    with torch.inference_mode():
        for dtype, close in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
            found = products.activated_product(x.to(dtype), weight.to(dtype), bias.to(dtype), activation)
            fused = activation in products.FUSIBLE and dtype in products.DTYPES and products.ONEDNN
            assert (found is not None) == fused
            if found is not None:
                exact = (tensor.to(dtype).double() for tensor in (x, weight, bias))
                assert_close(found.double(), ACTIVATIONS[activation](F.linear(*exact)), rtol=close, atol=close)


@pytest.mark.slow
def test_a_compiled_graph_multiplies_alike_at_every_size() -> None:
    weight, bias = torch.randn(3, 24, 16), torch.randn(3, 24)

    def run(x: Tensor) -> Tensor:
        hidden = products.activated_product(x, weight[0], bias[0], "gelu")
        if hidden is None:  # as in the graphs of some releases of torch
            hidden = F.gelu(products.product(x, weight[0], bias[0]))
        return hidden.flatten(1, 2) + products.grouped(x.flatten(1, 2), weight, bias)

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.inference_mode():
        for batch in (2, 3, 5):
            x = torch.randn(3, batch, 7, 16)
            assert_close(compiled(x), run(x), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("large", [1, products.LARGE])
@pytest.mark.parametrize("per_member_bias", [True, False, None])
@pytest.mark.parametrize("members", [(3, 3), (1, 3), (3, 1)])
def test_each_members_product(
    members: tuple[int, int], per_member_bias: bool | None, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LARGE", large)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(members[0], 5, 7, generator=generator)
    weight = torch.randn(members[1], 5, 7, generator=generator)
    bias = None
    if per_member_bias is not None:
        bias = torch.randn(*([3] if per_member_bias else []), 5, generator=generator)
    expected = x.double() @ weight.double().mT
    if bias is not None:
        expected = expected + (bias.double()[:, None] if per_member_bias else bias.double())
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with context():
            assert_close(products.grouped(x, weight, bias), expected.float(), rtol=0, atol=1e-5)
            assert_close(products.grouped(x, weight.mT.contiguous().mT, bias), expected.float(), rtol=0, atol=1e-5)
            halves = (None if part is None else part.bfloat16() for part in (x, weight, bias))
            assert_close(products.grouped(*halves).double(), expected, rtol=0.05, atol=0.1)
