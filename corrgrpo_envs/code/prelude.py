"""What stands in front of a program and of its tests: imports, linked lists and binary trees.

The names and what they do are those of LeetCodeDataset's `prompt` field (arXiv 2504.14655), so that programs written
for the one run with the other; `pow` is therefore `math.pow`. One thing differs: the comparisons here don't recurse,
so long lists and deep trees pass.
"""

PRELUDE = """\
import collections
import datetime
import functools
import heapq
import itertools
import math
import random
import string
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from operator import *
from string import *
from typing import *
from math import *

inf = float("inf")


class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next


def list_node(values: list):
    head = None
    for value in reversed(values or []):
        head = ListNode(value, head)
    return head


def is_same_list(p1, p2):
    while p1 is not None and p2 is not None:
        if p1.val != p2.val:
            return False
        p1, p2 = p1.next, p2.next
    return p1 is None and p2 is None


class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val = val
        self.left = left
        self.right = right


def tree_node(values: list):
    if not values:
        return None
    root = TreeNode(values[0])
    rest = iter(values[1:])
    parents = deque([root])
    while parents:
        parent = parents.popleft()
        for side in ("left", "right"):
            value = next(rest, None)
            if value is not None:
                child = TreeNode(value)
                setattr(parent, side, child)
                parents.append(child)
    return root


def is_same_tree(p, q):
    pairs = [(p, q)]
    while pairs:
        p, q = pairs.pop()
        if p is None or q is None:
            if p is not q:
                return False
        elif p.val != q.val:
            return False
        else:
            pairs += [(p.left, q.left), (p.right, q.right)]
    return True
"""
