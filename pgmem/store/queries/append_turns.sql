-- Adds turns in order, all or none: with idempotency keys looked up first, and pinned ones counted.
-- Rows of turns that were stored before are answered as known; rows of new ones as new; no row: nothing was written.
with recursive given as materialized (
    select ord, role, content, extra, raw, pinned, tokens, idempotency_key, digest
      from unnest(%(roles)s::text[], %(contents)s::text[], %(extras)s::text[], %(raws)s::text[], %(pinned)s::boolean[],
                  %(tokens)s::integer[], %(idempotency_keys)s::text[], %(digests)s::bytea[])
           with ordinality as g (role, content, extra, raw, pinned, tokens, idempotency_key, digest, ord)
),
known as materialized (
    select u.no, u.branch, u.role, u.content, u.extra, u.raw, u.pinned, u.tokens, u.idempotency_key, u.created_at
      from pgmem.turns u
     where u.session_id = %(session_id)s
       and u.namespace = %(namespace)s
       and u.idempotency_key = any (%(idempotency_keys)s::text[])
),
-- Pinned turns are counted as the statement began; the tree must not have moved since, or the count says nothing.
pins as materialized (
    select t.last_no,
           (select count(*)
              from pgmem.turns u
             where u.session_id = t.session_id and u.namespace = t.namespace and u.pinned
               and u.no > coalesce((select e.no
                                      from pgmem.branches e
                                     where e.session_id = t.session_id and e.namespace = t.namespace and e.cause = 'erase'
                                     order by e.no desc
                                     limit 1), 0)
               and not exists (
                       select from pgmem.branches b
                        where b.session_id = u.session_id and b.namespace = u.namespace
                          and b.left_to >= u.no and b.left_from <= u.no
                   )) as pinned
      from pgmem.trees t
     where %(pins)s > 0
       and t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
),
before as materialized (
    select t.last_no, t.branch, t.chain
      from pgmem.trees t
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and t.open_branch <= %(seen_branch)s
       and not exists (select from known)
       and (%(pins)s = 0
            or exists (select from pins
                        where pins.last_no = t.last_no and pins.pinned + %(pins)s <= %(most_pinned)s))
       for no key update
),
chained as (
    select 0::bigint as ord, before.last_no, before.branch, before.chain
      from before
     union all
    select given.ord, chained.last_no, chained.branch,
           sha256(chained.chain || given.digest || int8send(chained.last_no + given.ord) || int8send(chained.branch)
                  || timestamptz_send(statement_timestamp()))
      from chained
      join given on given.ord = chained.ord + 1
),
moved as (
    update pgmem.trees as t
       set last_no = latest.last_no + latest.ord,
           chain = latest.chain
      from (select ord, last_no, chain from chained order by ord desc limit 1) latest
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and latest.ord > 0
    returning t.last_no
),
added as (
    insert into pgmem.turns (session_id, namespace, no, branch, role, content, extra, raw, pinned, tokens,
                             idempotency_key, chain, created_at)
    select %(session_id)s, %(namespace)s, chained.last_no + given.ord, chained.branch, given.role, given.content,
           given.extra::json, given.raw, given.pinned, given.tokens, given.idempotency_key, chained.chain,
           statement_timestamp()
      from given
      join chained on chained.ord = given.ord
      join moved on true
    returning no, branch, created_at
)
select false as known, no, branch, null::text as role, null::text as content, null::text as extra, null::text as raw,
       null::boolean as pinned, null::integer as tokens, null::text as idempotency_key, created_at
  from added
 union all
select true, no, branch, role, content, extra::text, raw, pinned, tokens, idempotency_key, created_at
  from known
 order by no
