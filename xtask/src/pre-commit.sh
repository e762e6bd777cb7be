#!/bin/sh
# Put here by « cargo xtask lab --git-hook »: no notebook is committed with its outputs.
# Delete this file to do without.

# Most commits touch no notebook and need not wait for cargo.
git diff --cached --quiet -- '*.ipynb' && exit 0

# A graphical git client often starts without cargo on its search path.
PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
export PATH

cargo --quiet xtask notebook --check --staged >&2 && exit 0
echo "Commit refusé : un notebook ne passe pas le contrôle, ou le contrôle n'a pas pu avoir lieu." >&2
echo "« git commit --no-verify » s'en dispense pour une fois." >&2
exit 1
