-- The bank's own database, beside the registry's; run once, when the volume is new.
CREATE DATABASE mybank;
