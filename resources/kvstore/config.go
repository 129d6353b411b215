// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"io/fs"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says how to reach etcd, and what is kept there. Whether there is an
// etcd at all is among the cluster's options. See docs/wire/kvstore.md.
type Config struct {
	KVStoreOpt                        map[string]string `flag:"kvstore-opt"`
	KVStoreLeaseTTL                   time.Duration     `flag:"kvstore-lease-ttl"`
	KVStorePeriodicSync               time.Duration     `flag:"kvstore-periodic-sync"`
	KVStoreMaxConsecutiveQuorumErrors uint32            `flag:"kvstore-max-consecutive-quorum-errors"`

	SynchronizeK8sServices bool `flag:"synchronize-k8s-services"`
	SynchronizeK8sNodes    bool `flag:"synchronize-k8s-nodes"`
}

// DefaultConfig is what the flags default to.
var DefaultConfig = Config{
	KVStoreOpt:                        map[string]string{},
	KVStoreLeaseTTL:                   15 * time.Minute,
	KVStorePeriodicSync:               5 * time.Minute,
	KVStoreMaxConsecutiveQuorumErrors: 2,
	SynchronizeK8sServices:            true,
	SynchronizeK8sNodes:               true,
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.StringToString("kvstore-opt", c.KVStoreOpt, "How to reach the key-value store, such as etcd.config=/path")
	fs.Duration("kvstore-lease-ttl", c.KVStoreLeaseTTL, "How long keys stay in the key-value store without their writer")
	fs.Duration("kvstore-periodic-sync", c.KVStorePeriodicSync, "How often own keys are compared with the key-value store; 0 turns it off")
	fs.Uint32("kvstore-max-consecutive-quorum-errors", c.KVStoreMaxConsecutiveQuorumErrors, "Failed quorum checks in a row that are tolerated")
	fs.Bool("synchronize-k8s-services", c.SynchronizeK8sServices, "Tell other clusters about global services")
	fs.Bool("synchronize-k8s-nodes", c.SynchronizeK8sNodes, "Keep the nodes in the key-value store in step with the cluster's")
	_ = fs.MarkHidden("kvstore-lease-ttl")
}

// The TTL that agents accept, too.
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
	case c.KVStorePeriodicSync < 0:
		return cell.Invalid("kvstore-periodic-sync", "must not be negative; 0 turns it off")
	}
	return nil
}

// InUse is the condition of what needs the kvstore.
var InUse = cell.When("the kvstore is in use", []string{"kvstore", "identity-allocation-mode", "synchronize-k8s-services", "synchronize-k8s-nodes"},
	func(shared cluster.Config, c Config) bool {
		return shared.KVStore != "" && (shared.IdentityMode() != "crd" || c.SynchronizeK8sServices || c.SynchronizeK8sNodes)
	})
