
# Names of locks, after the commands that take one. Reads the line itself: bash cuts its words at
# colons, which stand in every backend's address.
_leasehold_names() {
    _leasehold "$@"
    local line=${COMP_LINE:0:COMP_POINT} cur= before= command= given=() words i name cut
    read -ra words <<<"$line"
    local count=${#words[@]}
    if [[ $line != *[[:space:]] ]]; then
        count=$((count - 1))
        cur=${words[count]}
    fi
    [[ $cur == -* ]] && return
    for ((i = 1; i < count; i++)); do
        case ${words[i]} in
            --backend | --config)
                given+=("${words[i]}" "${words[i + 1]}")
                ((i++))
                ;;
            run | hold | acquire | status | list | ls | watch | force-release)
                [[ -z $command ]] && command=${words[i]}
                ;;
        esac
        before=${words[i]}
    done
    [[ -n $command ]] || return
    # The word before may be a flag that wants a value of its own.
    case $before in
        "$command" | -- | -n | --nonblock | --json | --yes | -q | --quiet | -v | --verbose) ;;
        *) return ;;
    esac
    # What stands before the last colon is on the line already.
    [[ $COMP_WORDBREAKS == *:* ]] && cut=${cur%"${cur##*:}"}
    COMPREPLY=()
    while IFS= read -r name; do
        COMPREPLY+=("$(printf %q "${name#"$cut"}")")
    done < <("${words[0]}" ${given[@]+"${given[@]}"} __names "$cur" 2>/dev/null)
}
complete -F _leasehold_names -o nosort -o bashdefault -o default leasehold
