"""Share groups: the SDK's side of them on brokers that serve them."""
