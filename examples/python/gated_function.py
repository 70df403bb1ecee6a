"""A plain function that runs only as the gate permits.

Needs `pip install ./clients/python` and a server: `callgate serve`.
"""

from callgate import CallRefused, Gate, gated


@gated(Gate("example-gated"))
def refund(order_id: str) -> str:
    """Pays an order back."""
    return f"{order_id} was refunded"


try:
    print(refund("o-17"))
except CallRefused as refusal:
    print(refusal)
