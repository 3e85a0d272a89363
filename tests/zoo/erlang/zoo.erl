%% 100 processes of Erlang on its schedulers' threads: 100 * 10 * 10 blocks.
-module(zoo).
-export([main/0, blocks/1]).
-on_load(load/0).

load() -> erlang:load_nif(os:getenv("ZOO_NIF"), 0).
blocks(_) -> erlang:nif_error(not_loaded).

main() ->
    Parent = self(),
    Pids = [spawn_link(fun() -> receive go -> ok end, Parent ! {sum, lists:sum([blocks(10) || _ <- lists:seq(1, 10)])} end) || _ <- lists:seq(1, 100)],
    io:put_chars("ready\n"),
    io:get_line(""),
    [Pid ! go || Pid <- Pids],
    Sum = lists:sum([receive {sum, N} -> N end || _ <- Pids]),
    io:format("~p~n", [Sum]),
    halt(0).
