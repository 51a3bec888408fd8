# Names of locks, from the backend that stands on the line.
_leasehold_names() {
    local -a names given typed
    local i
    typed=(${(z)LBUFFER})
    for (( i = 1; i < $#typed; i++ )); do
        if [[ $typed[i] == (--backend|--config) ]]; then
            given+=($typed[i] "${(Q)typed[i + 1]}")
        fi
    done
    names=("${(@f)$(leasehold "${given[@]}" __names "$PREFIX" 2>/dev/null)}")
    names=(${names:#})
    compadd -a names
}

