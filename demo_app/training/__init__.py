"""How the two small models that ship with the demo were made: every picture, question and weight comes from here.

The order: `tower`, `vl`, `vae`, `text_to_image`, `ship`; each is `python -m demo_app.training.<stage> --out FOLDER`
and goes on from the checkpoint it finds there.
"""
