// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstoretest

import (
	"slices"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// nowhere is an address at which nothing listens.
const nowhere = "http://127.0.0.1:1"

// Args are the options of an operator whose kvstore is at an endpoint. It has no API
// server.
func Args(endpoint string, more ...string) []string {
	return append([]string{
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=10000,etcd.address=" + endpoint,
		"--k8s-api-server=" + nowhere, "--ipam=kubernetes",
	}, more...)
}

// Unreachable are options of celltest.Check for a duty that writes to etcd. Its etcd is
// unreachable: that keeps nothing from starting or stopping.
func Unreachable(args ...string) []celltest.Option {
	return []celltest.Option{
		celltest.InTerm("leader"), celltest.With(append(slices.Clone(operatortest.Resources), kvstore.Cell)...),
		celltest.Args(Args(nowhere, args...)...), celltest.OffArgs("--kvstore="),
	}
}
