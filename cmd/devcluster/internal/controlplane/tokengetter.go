// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	authentication "k8s.io/kubernetes/pkg/serviceaccount"
)

// tokenGetter returns the getter that checks whether the objects that a service account
// token is bound to still exist. It is the API server's own, but reads single pods
// instead of caching all: a loaded cluster has many pods, and hardly a token is bound to
// one.
func (c *ControlPlane) tokenGetter() (func(informers.SharedInformerFactory) authentication.ServiceAccountTokenGetter, error) {
	client, err := kubernetes.NewForConfig(c.adminConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	noPods := corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
	return func(factory informers.SharedInformerFactory) authentication.ServiceAccountTokenGetter {
		core := factory.Core().V1()
		return serviceaccount.NewGetterFromClient(client,
			core.Secrets().Lister(), core.ServiceAccounts().Lister(), noPods, core.Nodes().Lister())
	}, nil
}
