#!/bin/busybox sh
# Takes rxe0 away, and gives UDP port 4791 back.
rdma link delete rxe0 && rmmod rdma_rxe
