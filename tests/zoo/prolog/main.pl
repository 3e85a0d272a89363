% Backtracking, exceptions, and stacks that grow by being moved. No exact count is compared, only the identities of
% `Oracle::Identities` (tests/src/zoo.rs).
nrev([], []).
nrev([H|T], R) :- nrev(T, S), append(S, [H], R).

work(Sum) :-
    numlist(1, 400, L),
    findall(N, (between(1, 200, _), nrev(L, [N|_])), Ns),
    sum_list(Ns, S),
    catch(throw(ten(10)), ten(T), true),
    thread_create((numlist(1, 50000, M), sum_list(M, X), thread_exit(X)), Id),
    thread_join(Id, exited(Y)),
    Sum is S + T + Y.

main :-
    write(ready), nl, flush_output,
    read_term(_, []),
    work(Sum),
    write(Sum), nl,
    halt.
