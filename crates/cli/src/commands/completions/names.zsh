# Names of locks.
_leasehold_names() {
    local -a names given
    (( ${+opt_args[--backend]} )) && given+=(--backend "${(Q)opt_args[--backend]}")
    (( ${+opt_args[--config]} )) && given+=(--config "${(Q)opt_args[--config]}")
    names=("${(@f)$(leasehold "${given[@]}" __names "$PREFIX" 2>/dev/null)}")
    names=(${names:#})
    compadd -a names
}

