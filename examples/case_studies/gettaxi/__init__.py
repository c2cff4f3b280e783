"""GetTaxi: riders are matched with the closest free driver, prices surge, and a ride costs what its stored positions say."""
