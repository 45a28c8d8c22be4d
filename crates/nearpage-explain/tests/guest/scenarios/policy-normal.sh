# machine: five
# truth: rule=watermark zone=Normal node=1 confined=policy killed=hog
fault "fill 1 0 KERNEL|THISNODE|NORETRY 200000"
hog 700 1
