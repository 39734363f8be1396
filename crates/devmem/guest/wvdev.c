// SPDX-License-Identifier: GPL-2.0
/*
 * Test-only: two network interfaces, wvdev0 and wvdev1, joined by a wire in memory. Each has two
 * receive queues, whose page pools may be given a dmabuf: device-memory TCP without a NIC. Flows of
 * TCP over IPv4 are steered by rules of ethtool; all else goes to queue 0.
 *
 * A packet that is sent is split behind its TCP header: the headers go to the linear part of the
 * received packet, the payload to pages of the receiver's pool. The "device" reaches such a page by
 * its DMA address, which is a physical address here: there is no IOMMU, and the dmabuf must consist
 * of ordinary memory, as udmabuf's does.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/ethtool_netlink.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/tcp.h>
#include <net/netdev_queues.h>
#include <net/netdev_rx_queue.h>
#include <net/page_pool/helpers.h>

/* Renamed in the course of 6.12; the Makefile looks for the new name. */
#ifndef WV_ALLOC_NETMEMS
#define page_pool_alloc_netmems page_pool_alloc_netmem
#endif

#define POOL_SIZE 1024
#define BACKLOG 512

#define QUEUES 2
#define RULES 16

struct wv_dev;

struct wv_queue {
	struct wv_dev *dev;
	struct napi_struct napi;
	struct sk_buff_head arrived; /* as sent, not yet split */
	struct page_pool *pool;
};

struct wv_dev {
	struct net_device *net;
	struct wv_dev *peer;
	struct wv_queue queues[QUEUES];
	struct ethtool_rx_flow_spec rules[RULES];
	bool taken[RULES];
	spinlock_t lock; /* of the rules */
	u8 split;
};

/* Every n-th packet keeps this much payload beside its headers, as NICs do now and then. */
static unsigned int linear_every;
module_param(linear_every, uint, 0644);
static unsigned int linear_bytes = 33;
module_param(linear_bytes, uint, 0644);

static struct platform_device *parent;
static struct wv_dev *devs[2];

static struct page_pool *wv_pool(struct net_device *net, int idx)
{
	struct wv_dev *dev = netdev_priv(net);
	struct page_pool_params params = {
		.pool_size = POOL_SIZE,
		.nid = NUMA_NO_NODE,
		.dev = net->dev.parent,
		.napi = &dev->queues[idx].napi,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = PAGE_SIZE,
		.netdev = net,
		.queue_idx = idx,
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV |
			 PP_FLAG_ALLOW_UNREADABLE_NETMEM,
	};

	return page_pool_create(&params);
}

static int wv_queue_mem_alloc(struct net_device *net, void *mem, int idx)
{
	struct page_pool **pool = mem;

	*pool = wv_pool(net, idx);
	return PTR_ERR_OR_ZERO(*pool);
}

static void wv_queue_mem_free(struct net_device *net, void *mem)
{
	struct page_pool **pool = mem;

	page_pool_destroy(*pool);
}

static int wv_queue_start(struct net_device *net, void *mem, int idx)
{
	struct wv_dev *dev = netdev_priv(net);
	struct wv_queue *queue = &dev->queues[idx];

	queue->pool = *(struct page_pool **)mem;
	napi_enable(&queue->napi);
	napi_schedule(&queue->napi);
	return 0;
}

static int wv_queue_stop(struct net_device *net, void *mem, int idx)
{
	struct wv_dev *dev = netdev_priv(net);
	struct wv_queue *queue = &dev->queues[idx];

	napi_disable(&queue->napi);
	/* The pool is freed when the next one is polled already. */
	page_pool_disable_direct_recycling(queue->pool);
	*(struct page_pool **)mem = queue->pool;
	queue->pool = NULL;
	return 0;
}

static const struct netdev_queue_mgmt_ops wv_queue_ops = {
	.ndo_queue_mem_size = sizeof(struct page_pool *),
	.ndo_queue_mem_alloc = wv_queue_mem_alloc,
	.ndo_queue_mem_free = wv_queue_mem_free,
	.ndo_queue_start = wv_queue_start,
	.ndo_queue_stop = wv_queue_stop,
};

/* Bytes of headers up to and with TCP's, or all of them. */
static unsigned int wv_headers(struct sk_buff *skb)
{
	unsigned int at = ETH_HLEN, transport;
	struct tcphdr tcp, *tcph;
	u8 protocol;

	if (skb->protocol == htons(ETH_P_IP)) {
		struct iphdr ip, *iph = skb_header_pointer(skb, at, sizeof(ip), &ip);

		if (!iph)
			return skb->len;
		protocol = iph->protocol;
		transport = at + iph->ihl * 4;
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		struct ipv6hdr ip, *iph = skb_header_pointer(skb, at, sizeof(ip), &ip);

		if (!iph)
			return skb->len;
		protocol = iph->nexthdr;
		transport = at + sizeof(ip);
	} else {
		return skb->len;
	}
	if (protocol != IPPROTO_TCP)
		return skb->len;
	tcph = skb_header_pointer(skb, transport, sizeof(tcp), &tcp);
	return tcph ? min(skb->len, transport + tcph->doff * 4) : skb->len;
}

static void *wv_page(netmem_ref netmem)
{
	return phys_to_virt(page_pool_get_dma_addr_netmem(netmem));
}

/* The queue to which a rule steers the packet. */
static unsigned int wv_steer(struct wv_dev *dev, struct sk_buff *skb)
{
	struct tcphdr tcp, *tcph;
	struct iphdr ip, *iph;
	unsigned int queue = 0, i;

	if (skb->protocol != htons(ETH_P_IP))
		return 0;
	iph = skb_header_pointer(skb, ETH_HLEN, sizeof(ip), &ip);
	if (!iph || iph->protocol != IPPROTO_TCP)
		return 0;
	tcph = skb_header_pointer(skb, ETH_HLEN + iph->ihl * 4, sizeof(tcp), &tcp);
	if (!tcph)
		return 0;
	spin_lock_bh(&dev->lock);
	for (i = 0; i < RULES; i++) {
		struct ethtool_tcpip4_spec *is = &dev->rules[i].h_u.tcp_ip4_spec;
		struct ethtool_tcpip4_spec *mask = &dev->rules[i].m_u.tcp_ip4_spec;

		if (dev->taken[i] && !((iph->saddr ^ is->ip4src) & mask->ip4src) &&
		    !((iph->daddr ^ is->ip4dst) & mask->ip4dst) &&
		    !((tcph->source ^ is->psrc) & mask->psrc) &&
		    !((tcph->dest ^ is->pdst) & mask->pdst))
			queue = dev->rules[i].ring_cookie;
	}
	spin_unlock_bh(&dev->lock);
	return queue;
}

/* The packet as a NIC with header split would deliver it; NULL if a page is missing. */
static struct sk_buff *wv_split(struct wv_queue *queue, struct sk_buff *sent)
{
	static unsigned int count;
	struct wv_dev *dev = queue->dev;
	unsigned int head = wv_headers(sent), at;
	struct sk_buff *skb;

	/*
	 * Never all of it: Linux 6.12 refuses to receive from a merged packet (GRO) of which one part
	 * has fragments in device memory and another has no fragments at all.
	 */
	if (linear_every && sent->len - head > linear_bytes && ++count % linear_every == 0)
		head += linear_bytes;
	/*
	 * Not of page fragments: when packets are merged, the kernel would make a fragment of such a
	 * head's payload, and refuse the mixture of that and device memory.
	 */
	skb = alloc_skb(head, GFP_ATOMIC);
	if (!skb)
		return NULL;
	skb->dev = dev->net;
	skb_copy_bits(sent, 0, skb_put(skb, head), head);
	for (at = head; at < sent->len;) {
		unsigned int len = min_t(unsigned int, sent->len - at, PAGE_SIZE);
		netmem_ref netmem = page_pool_alloc_netmems(queue->pool, GFP_ATOMIC);

		if (!netmem) {
			skb_mark_for_recycle(skb);
			kfree_skb(skb);
			return NULL;
		}
		skb_copy_bits(sent, at, wv_page(netmem), len);
		skb_add_rx_frag_netmem(skb, skb_shinfo(skb)->nr_frags, netmem, 0, len, PAGE_SIZE);
		at += len;
	}
	skb_mark_for_recycle(skb);
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb->protocol = eth_type_trans(skb, dev->net);
	skb_record_rx_queue(skb, queue - dev->queues);
	return skb;
}

static int wv_poll(struct napi_struct *napi, int budget)
{
	struct wv_queue *queue = container_of(napi, struct wv_queue, napi);
	int done = 0;

	while (done < budget) {
		struct sk_buff *sent = skb_dequeue(&queue->arrived), *skb;

		if (!sent)
			break;
		skb = wv_split(queue, sent);
		consume_skb(sent);
		if (skb)
			napi_gro_receive(napi, skb);
		else
			queue->dev->net->stats.rx_dropped++;
		done++;
	}
	if (done < budget)
		napi_complete_done(napi, done);
	/* One may have come after the last look. */
	if (done < budget && !skb_queue_empty(&queue->arrived))
		napi_schedule(napi);
	return done;
}

static netdev_tx_t wv_xmit(struct sk_buff *skb, struct net_device *net)
{
	struct wv_dev *dev = netdev_priv(net), *peer = dev->peer;
	struct wv_queue *queue = &peer->queues[wv_steer(peer, skb)];

	if (!netif_running(peer->net) || skb_queue_len(&queue->arrived) >= BACKLOG) {
		net->stats.tx_dropped++;
		kfree_skb(skb);
		return NETDEV_TX_OK;
	}
	/* The checksum is not filled in: the wire does not fail. */
	skb_orphan(skb);
	skb_queue_tail(&queue->arrived, skb);
	napi_schedule(&queue->napi);
	return NETDEV_TX_OK;
}

static int wv_open(struct net_device *net)
{
	struct wv_dev *dev = netdev_priv(net);
	int i;

	for (i = 0; i < QUEUES; i++) {
		struct page_pool *pool = wv_pool(net, i);

		if (IS_ERR(pool)) {
			while (i--)
				page_pool_destroy(dev->queues[i].pool);
			return PTR_ERR(pool);
		}
		dev->queues[i].pool = pool;
	}
	for (i = 0; i < QUEUES; i++)
		napi_enable(&dev->queues[i].napi);
	netif_carrier_on(net);
	netif_start_queue(net);
	return 0;
}

static int wv_stop(struct net_device *net)
{
	struct wv_dev *dev = netdev_priv(net);
	int i;

	netif_stop_queue(net);
	for (i = 0; i < QUEUES; i++) {
		struct wv_queue *queue = &dev->queues[i];

		napi_disable(&queue->napi);
		skb_queue_purge(&queue->arrived);
		page_pool_destroy(queue->pool);
		queue->pool = NULL;
	}
	return 0;
}

static const struct net_device_ops wv_ops = {
	.ndo_open = wv_open,
	.ndo_stop = wv_stop,
	.ndo_start_xmit = wv_xmit,
	.ndo_set_mac_address = eth_mac_addr,
};

static void wv_get_ringparam(struct net_device *net, struct ethtool_ringparam *ring,
			     struct kernel_ethtool_ringparam *kernel, struct netlink_ext_ack *extack)
{
	struct wv_dev *dev = netdev_priv(net);

	ring->rx_max_pending = POOL_SIZE;
	ring->rx_pending = POOL_SIZE;
	kernel->tcp_data_split = dev->split;
}

static int wv_set_ringparam(struct net_device *net, struct ethtool_ringparam *ring,
			    struct kernel_ethtool_ringparam *kernel, struct netlink_ext_ack *extack)
{
	struct wv_dev *dev = netdev_priv(net);

	dev->split = kernel->tcp_data_split;
	return 0;
}

static int wv_get_rxnfc(struct net_device *net, struct ethtool_rxnfc *info, u32 *locations)
{
	struct wv_dev *dev = netdev_priv(net);
	unsigned int i, count = 0;

	switch (info->cmd) {
	case ETHTOOL_GRXRINGS:
		info->data = QUEUES;
		return 0;
	case ETHTOOL_GRXCLSRLCNT:
	case ETHTOOL_GRXCLSRLALL:
		for (i = 0; i < RULES; i++) {
			if (!dev->taken[i])
				continue;
			if (info->cmd == ETHTOOL_GRXCLSRLALL && count < info->rule_cnt)
				locations[count] = i;
			count++;
		}
		info->rule_cnt = count;
		info->data = RULES;
		return 0;
	}
	return -EOPNOTSUPP;
}

static int wv_set_rxnfc(struct net_device *net, struct ethtool_rxnfc *info)
{
	struct wv_dev *dev = netdev_priv(net);
	struct ethtool_rx_flow_spec *rule = &info->fs;
	bool insert = info->cmd == ETHTOOL_SRXCLSRLINS;

	if (!insert && info->cmd != ETHTOOL_SRXCLSRLDEL)
		return -EOPNOTSUPP;
	if (rule->location >= RULES)
		return -EINVAL;
	if (insert && rule->flow_type != TCP_V4_FLOW)
		return -EOPNOTSUPP;
	if (insert && rule->ring_cookie >= QUEUES)
		return -EINVAL;
	spin_lock_bh(&dev->lock);
	dev->taken[rule->location] = insert;
	if (insert)
		dev->rules[rule->location] = *rule;
	spin_unlock_bh(&dev->lock);
	return 0;
}

/* Flows are hashed to queue 0 alone; rules lead to the others. */
static u32 wv_get_rxfh_indir_size(struct net_device *net)
{
	return QUEUES;
}

static int wv_get_rxfh(struct net_device *net, struct ethtool_rxfh_param *rxfh)
{
	rxfh->hfunc = ETH_RSS_HASH_TOP;
	if (rxfh->indir)
		memset(rxfh->indir, 0, QUEUES * sizeof(*rxfh->indir));
	return 0;
}

static const struct ethtool_ops wv_ethtool_ops = {
	.get_rxfh_indir_size = wv_get_rxfh_indir_size,
	.get_rxfh = wv_get_rxfh,
	.get_rxnfc = wv_get_rxnfc,
	.set_rxnfc = wv_set_rxnfc,
	.supported_ring_params = ETHTOOL_RING_USE_TCP_DATA_SPLIT,
	.get_ringparam = wv_get_ringparam,
	.set_ringparam = wv_set_ringparam,
	.get_link = ethtool_op_get_link,
};

static struct wv_dev *wv_make(int number)
{
	struct net_device *net = alloc_etherdev_mqs(sizeof(struct wv_dev), 1, QUEUES);
	struct wv_dev *dev;
	int error, i;

	if (!net)
		return ERR_PTR(-ENOMEM);
	dev = netdev_priv(net);
	dev->net = net;
	dev->split = ETHTOOL_TCP_DATA_SPLIT_ENABLED;
	spin_lock_init(&dev->lock);
	snprintf(net->name, IFNAMSIZ, "wvdev%d", number);
	SET_NETDEV_DEV(net, &parent->dev);
	eth_hw_addr_random(net);
	net->netdev_ops = &wv_ops;
	net->ethtool_ops = &wv_ethtool_ops;
	net->queue_mgmt_ops = &wv_queue_ops;
	net->features |= NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_HIGHDMA | NETIF_F_RXCSUM;
	net->hw_features |= net->features;
	net->max_mtu = 9000;
	for (i = 0; i < QUEUES; i++) {
		dev->queues[i].dev = dev;
		skb_queue_head_init(&dev->queues[i].arrived);
		netif_napi_add(net, &dev->queues[i].napi, wv_poll);
	}
	error = register_netdev(net);
	if (error) {
		free_netdev(net);
		return ERR_PTR(error);
	}
	return dev;
}

static int __init wv_init(void)
{
	int error;

	parent = platform_device_register_simple("wvdev", -1, NULL, 0);
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	error = dma_coerce_mask_and_coherent(&parent->dev, DMA_BIT_MASK(64));
	if (error)
		goto parent;
	devs[0] = wv_make(0);
	error = PTR_ERR_OR_ZERO(devs[0]);
	if (error)
		goto parent;
	devs[1] = wv_make(1);
	error = PTR_ERR_OR_ZERO(devs[1]);
	if (error)
		goto first;
	devs[0]->peer = devs[1];
	devs[1]->peer = devs[0];
	return 0;
first:
	unregister_netdev(devs[0]->net);
	free_netdev(devs[0]->net);
parent:
	platform_device_unregister(parent);
	return error;
}

static void __exit wv_exit(void)
{
	/* Each sends to the other until both are gone. */
	unregister_netdev(devs[0]->net);
	unregister_netdev(devs[1]->net);
	free_netdev(devs[0]->net);
	free_netdev(devs[1]->net);
	platform_device_unregister(parent);
}

module_init(wv_init);
module_exit(wv_exit);
MODULE_DESCRIPTION("Test-only interfaces with device-memory TCP");
MODULE_LICENSE("GPL");
