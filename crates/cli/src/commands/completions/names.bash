
# Names of locks, after the commands that take one.
_leasehold_names() {
    _leasehold "$@"
    local cur=${COMP_WORDS[COMP_CWORD]} command= given=() i
    [[ $cur == -* ]] && return
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            --backend | --config)
                given+=("${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}")
                ((i++))
                ;;
            run | hold | acquire | status | list | ls | watch | force-release)
                [[ -z $command ]] && command=${COMP_WORDS[i]}
                ;;
        esac
    done
    # The word before may be a flag that wants a value of its own.
    case ${COMP_WORDS[COMP_CWORD - 1]} in
        "$command" | -n | --nonblock | --json | --yes | -q | --quiet | -v | --verbose) ;;
        *) return ;;
    esac
    [[ -n $command ]] || return
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${given[@]}" __names "$cur" 2>/dev/null)" -- "$cur"))
}
complete -F _leasehold_names -o nosort -o bashdefault -o default leasehold
