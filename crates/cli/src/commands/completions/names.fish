
# Names of locks.
function __leasehold_names
    set -l given
    set -l words (commandline -opc)
    for i in (seq (count $words))
        if contains -- $words[$i] --backend --config; and test $i -lt (count $words)
            set -a given $words[$i] $words[(math $i + 1)]
        end
    end
    leasehold $given __names (commandline -ct) 2>/dev/null
end
complete -c leasehold -n "__fish_seen_subcommand_from hold acquire status list ls watch force-release" -f -a "(__leasehold_names)"
# Files, too: after the name comes a command.
complete -c leasehold -n "__fish_seen_subcommand_from run" -a "(__leasehold_names)"
