// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

const (
	collectorUser    = "system:serviceaccount:kube-system:generic-garbage-collector"
	collectorWorkers = 20
	// collectorSync is how soon the collector notices a custom resource that was
	// defined after its start.
	collectorSync = 2 * time.Second
)

// runGarbageCollector runs the controller manager's garbage collector, but not
// inside the controller manager: there it keeps every built-in object whole,
// which would double the memory of a loaded cluster, and looks for new kinds
// only twice a minute.
func (c *ControlPlane) runGarbageCollector(ctx context.Context) error {
	config, err := c.identity.ClientConfig(c.URL(), collectorUser, "system:serviceaccounts", "system:serviceaccounts:kube-system")
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a metadata client: %w", err)
	}
	mapper, err := newMapper(config)
	if err != nil {
		return err
	}
	started := make(chan struct{})
	close(started)
	factory := metadataOnly{metadatainformer.NewSharedInformerFactoryWithOptions(objects, 0, metadatainformer.WithTransform(keepOwners))}
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, objects, mapper,
		garbagecollector.DefaultIgnoredResources(), factory, started)
	if err != nil {
		return fmt.Errorf("make the garbage collector: %w", err)
	}
	go collector.Sync(ctx, client.Discovery(), collectorSync)
	collector.Run(ctx, collectorWorkers, 30*time.Second)
	return nil
}

func newMapper(config *rest.Config) (*restmapper.DeferredDiscoveryRESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a discovery client: %w", err)
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), nil
}

// metadataOnly makes informers that keep the metadata of objects.
type metadataOnly struct {
	metadatainformer.SharedInformerFactory
}

func (m metadataOnly) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return m.SharedInformerFactory.ForResource(resource), nil
}

// keepOwners drops what the collector does not read.
func keepOwners(obj any) (any, error) {
	if object, ok := obj.(*metav1.PartialObjectMetadata); ok {
		object.Labels, object.Annotations, object.ManagedFields = nil, nil, nil
	}
	return obj, nil
}
