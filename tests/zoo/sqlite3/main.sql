create table t (n integer primary key, h text);
with recursive s(n) as (select 1 union all select n + 1 from s where n < 2000) insert into t select n, hex(n * 7919) from s;
create index i on t (h);
select count(*), min(h), max(h) from t;
select sum(length(a.h || b.h)) from t a join t b on b.n = a.n + 1;
select count(distinct substr(h, 1, 4)) from t group by n % 3;
