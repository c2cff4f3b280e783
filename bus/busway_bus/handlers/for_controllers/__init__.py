"""What is answered on the listeners of a controller, one module for each API; `registry` lists them."""
