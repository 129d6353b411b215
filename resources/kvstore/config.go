// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"io/fs"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config configures the connection to etcd and the duties that write to it. Whether
// etcd is used at all is an option of resources/cluster. See docs/wire/kvstore.md.
type Config struct {
	KVStoreOpt                        map[string]string `flag:"kvstore-opt" usage:"Options of the kvstore client, such as etcd.config=/path"`
	KVStoreLeaseTTL                   time.Duration     `flag:"kvstore-lease-ttl" usage:"TTL of the lease that keys in the kvstore are attached to" hidden:"true"`
	KVStorePeriodicSync               time.Duration     `flag:"kvstore-periodic-sync" usage:"Interval between comparisons of own keys with the kvstore; 0 disables them" min:"100ms" zero:"turns it off"`
	KVStoreMaxConsecutiveQuorumErrors uint32            `flag:"kvstore-max-consecutive-quorum-errors" usage:"Maximum number of consecutive failed quorum checks before the kvstore counts as failed"`

	SynchronizeK8sServices bool `flag:"synchronize-k8s-services" usage:"Write global services to the kvstore for other clusters"`
	SynchronizeK8sNodes    bool `flag:"synchronize-k8s-nodes" usage:"Synchronize nodes to the kvstore"`
}

// DefaultConfig holds the defaults of the flags.
var DefaultConfig = Config{
	KVStoreOpt:                        map[string]string{},
	KVStoreLeaseTTL:                   15 * time.Minute,
	KVStorePeriodicSync:               5 * time.Minute,
	KVStoreMaxConsecutiveQuorumErrors: 2,
	SynchronizeK8sServices:            true,
	SynchronizeK8sNodes:               true,
}

// The range of TTLs that agents accept.
const minLeaseTTL, maxLeaseTTL = 25 * time.Second, 24 * time.Hour

// Validate implements the check of config structs.
func (c Config) Validate() error {
	o, errs := parseOptions(c.KVStoreOpt)
	if len(errs) > 0 {
		for i, err := range errs {
			errs[i] = cell.Invalid("kvstore-opt", "%v", err)
		}
		return errors.Join(errs...)
	}
	if o.file != "" {
		if _, err := readFile(o.file); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return cell.Invalid("kvstore-opt", "%v", err)
		}
	}
	switch {
	case c.KVStoreLeaseTTL < minLeaseTTL || c.KVStoreLeaseTTL > maxLeaseTTL:
		return cell.Invalid("kvstore-lease-ttl", "must be between %s and %s", minLeaseTTL, maxLeaseTTL)
	}
	return nil
}

// InUse is the condition of modules that need the kvstore.
var InUse = cell.When("the kvstore is in use", []string{"kvstore", "identity-allocation-mode", "synchronize-k8s-services", "synchronize-k8s-nodes"},
	func(shared cluster.Config, c Config) bool {
		return shared.KVStore != "" && (shared.IdentitiesInKVStore() || c.SynchronizeK8sServices || c.SynchronizeK8sNodes)
	})
