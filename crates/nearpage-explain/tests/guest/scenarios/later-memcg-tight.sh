# machine: three
# truth: rule=memcg killed=hog
# A limit of twelve megabytes.
mkdir /cg/tight; echo 12M > /cg/tight/memory.max
in_group tight /hog 40
rmdir /cg/tight
