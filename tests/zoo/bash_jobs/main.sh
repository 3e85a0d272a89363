# Job control, pipes, subshells, traps and process substitution. The shell forks while it allocates.
set -m
trap 'n=$((n + 1))' USR1
n=0
echo ready
read -r line
for i in 1 2 3 4 5 6 7 8; do
    (exit $i) &
    kill -USR1 $$
    wait $! || sum=$((sum + $?))
done
words=($(for i in {1..300}; do echo "word$i"; done))
text=${words[*]}
while read -r one; do last=$one; done < <(printf '%s\n' "${words[@]}" | sort)
echo "$sum $n ${#words[@]} ${#text} $last"
