"""Spark jobs over GetTaxi's topics and its analytics store. `busway spark gettaxi.jobs.fares`"""
