// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package doublewrite

import (
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell compares both kinds of identities.
var Cell = cell.Module("doublewrite", "Compares the identities in etcd with the CiliumIdentities",
	cell.Config(Config{DoubleWriteMetricReporterInterval: time.Minute}),
	cell.EnabledBy(cell.When("identities are kept in etcd and as objects", []string{"identity-allocation-mode", "kvstore"}, enabled)),
	k8s.RBAC(k8s.Allow("list,watch", v2.CiliumIdentityResource.GroupResource())),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("compare", (*controller).run),
)

func enabled(shared cluster.Config) bool {
	return shared.IdentitiesInCRD() && shared.IdentitiesInKVStore()
}

// Config is the interval of the comparisons.
type Config struct {
	DoubleWriteMetricReporterInterval time.Duration `flag:"double-write-metric-reporter-interval" usage:"Interval between comparisons of the identities in the kvstore with the CiliumIdentities. 0 compares once" min:"100ms" zero:"compares once"`
}
