// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package clustertest gives tests a real Kubernetes control plane: etcd,
// kube-apiserver and kube-controller-manager of one release in one process on
// loopback, with an audit log and with fault proxies in front.
//
//	c := clustertest.Start(t)                  // or Shared(t), see Wrap
//	client := kubernetes.NewForConfigOrDie(c.AdminConfig(t))
//	log := c.Audit(t)                          // what happens from here on
//	door := c.NewProxy(t)                      // a way to the API server that can be broken
//	run(t, door.Kubeconfig())
//	door.BlackHole(t)
//
// The cluster is the program cmd/devcluster, which is built into bin/ of the
// repository when it is missing or older than its sources; the first build takes
// minutes. Tests of other repositories name one that is built with
// SKEP_DEVCLUSTER=path: it is bin/controlplane/devcluster after `make devcluster` in this one. The
// cluster ends with the test, or with the test process at the latest.
//
// Faults set through a Proxy are taken back when the test that set them ends.
// Methods that take a testing.TB fail that test, and so belong to its goroutine.
// With -short, tests that ask for a cluster are skipped.
//
// Nothing here may import k8s.io/kubernetes, or anything that is under test.
package clustertest
