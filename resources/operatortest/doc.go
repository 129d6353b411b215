// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package operatortest runs duties in an operator of their own, in the test's process,
// against a real API server (clustertest) or a real etcd (kvstoretest):
//
//	func TestMain(m *testing.M) { operatortest.Main(m) }
//
//	func TestFloating(t *testing.T) {
//		env := operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode")
//		env.CreateNamespace()
//		op := operatortest.Start(t, floating.Cell, env.Kubeconfig(), "--floating-url="+url)
//		createService(t, env.Core, env.Namespace)
//		operatortest.Eventually(t, "the Service has an address", func() bool { … })
//		env.CheckHealthy(op)
//	}
//
// An operator has the cells that duties share (Resources) and enters its leader term at
// once; Setup adds cells or leaves the term to leader election. A duty that writes to etcd
// is started together with kvstore.Cell. A write without a cause fails. The log and what is degraded are printed when the test fails.
//
// Beside that there is what makes a duty's life hard: a second writer that reverts its
// writes (Revert), responses that no API server gives (Interceptor, BadResponses), users
// with few permissions (Env.As), and faults of the network and of the API server
// (clustertest.Proxy). Seeds of random histories are in runtime/seedtest.
//
// clustertest tells where the control plane of tests comes from. With -short, tests that
// need one are skipped.
package operatortest
