-- Adds the tree of a namespace unless it is there.
insert into pgmem.trees (session_id, namespace, chain)
values (%(session_id)s, %(namespace)s, sha256(int8send(%(session_id)s) || convert_to(%(namespace)s, 'UTF8')))
    on conflict on constraint trees_pkey do nothing
returning session_id
