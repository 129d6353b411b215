// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"net/netip"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// pool is a cluster CIDR cut into blocks of one size, one per node.
type pool struct {
	*alloc.BlockPool[string]
	prefix netip.Prefix
	mask   int
}

// newPool returns a pool of blocks, which are owned by names of nodes.
func newPool(blocks *alloc.Blocks[string], prefix netip.Prefix, mask int) (*pool, error) {
	of, err := blocks.NewPool(alloc.FamilyOf(prefix.Addr()), mask)
	if err == nil {
		err = of.Set(prefix)
	}
	return &pool{of, prefix, mask}, err
}

// String is the pool in error texts of the contract.
func (p *pool) String() string { return fmt.Sprintf("clusterCIDR: %s, nodeMask: %d", p.prefix, p.mask) }

// size is how many blocks the pool has.
func (p *pool) size() uint64 { return p.Total().Uint64() }

// used is how many blocks are allocated.
func (p *pool) used() uint64 { return p.Held().Uint64() }

// free is how many blocks can be allocated: neither allocated nor claimed.
func (p *pool) free() uint64 { return p.Free().Uint64() }

// full reports whether all blocks are allocated.
func (p *pool) full() bool { return p.used() == p.size() }

// oversized reports whether a CIDR is larger than a block and contains the whole pool. No node is allocated one, and a
// node that lists one must not block the pool.
func (p *pool) oversized(c netip.Prefix) bool {
	return c.Bits() < p.mask && c.Bits() <= p.prefix.Bits()
}
