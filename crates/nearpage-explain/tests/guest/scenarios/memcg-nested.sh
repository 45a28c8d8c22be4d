# machine: five
# truth: rule=memcg killed=hog
mkdir /cg/outer; echo "+memory" > /cg/outer/cgroup.subtree_control
mkdir /cg/outer/inner; echo 80M > /cg/outer/memory.max
in_group outer/inner /hog 200
rmdir /cg/outer/inner /cg/outer
