// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// errOutdated is returned where the API server shows another state than the caches.
var errOutdated = errors.New("an object has changed since it was read from the cache")

func (c *controller) act(ctx context.Context, name string, a action) error {
	switch a.verb {
	case create, update:
		return c.write(ctx, name, a)
	case remove:
		return c.remove(ctx, a)
	}
	return nil
}

// write creates or updates a CiliumBGPNodeConfig, and records what became of its router IDs.
func (c *controller) write(ctx context.Context, name string, a action) error {
	var stored *unstructured.Unstructured
	var err error
	if a.verb == create {
		stored, err = c.create(ctx, name, a)
	} else {
		stored, err = c.update(ctx, name, a)
	}
	var revision slim.Revision
	if err == nil {
		revision, err = slim.ParseRevision(stored.GetResourceVersion())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner.ids.end(name, revision, err == nil || k8s.Refused(err) || errors.Is(err, errOutdated))
	return err
}

func (c *controller) create(ctx context.Context, name string, a action) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetAPIVersion(nodeConfigs.Resource().GroupVersion().String())
	u.SetKind(nodeConfigs.Name())
	u.SetName(name)
	if err := a.apply(u); err != nil {
		return nil, err
	}
	stored, err := c.Client.Create(ctx, nodeConfigs.Resource(), u)
	if k8s.IsAlreadyExists(err, k8s.Ref{Resource: nodeConfigs.Resource(), Name: name}) {
		return nil, errOutdated
	}
	return stored, err
}

func (c *controller) update(ctx context.Context, name string, a action) (*unstructured.Unstructured, error) {
	ref := k8s.Ref{Resource: nodeConfigs.Resource(), Name: name, UID: a.current.UID.API()}
	stored, _, err := c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if u.GetDeletionTimestamp() != nil || !slices.ContainsFunc(u.GetOwnerReferences(), a.isOwner) {
			return errOutdated
		}
		return a.apply(u)
	})
	if k8s.IsNotFound(err, ref) {
		return nil, errOutdated
	}
	return stored, err
}

// isOwner reports whether an owner reference names the CiliumBGPClusterConfig of the action.
func (a *action) isOwner(o metav1.OwnerReference) bool {
	return o.Kind == clusterConfigs.Name() && o.Name == a.owner.Name
}

// apply sets what is desired of a CiliumBGPNodeConfig.
func (a *action) apply(u *unstructured.Unstructured) error {
	list, err := encode(a.routers)
	if err != nil {
		return err
	}
	spec, _ := u.Object["spec"].(map[string]any) // one of another type is replaced
	if spec == nil {
		spec = map[string]any{}
		u.Object["spec"] = spec
	}
	spec["bgpInstances"] = list
	owners := u.GetOwnerReferences()
	if i := slices.IndexFunc(owners, a.isOwner); i >= 0 {
		owners[i].UID = a.owner.UID.API()
	} else {
		isController := true
		owners = append(owners, metav1.OwnerReference{
			APIVersion: cmp.Or(a.owner.APIVersion.String(), clusterConfigs.Resource().GroupVersion().String()), Kind: clusterConfigs.Name(), Name: a.owner.Name, UID: a.owner.UID.API(), Controller: &isController,
		})
	}
	u.SetOwnerReferences(owners)
	return nil
}

// encode returns routers as they are on the wire, without the fields that are not set.
func encode(of []instance) (list []any, err error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("encoding routers: %w", err)
	}
	if err := utiljson.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("encoding routers: %w", err)
	}
	return dropUnset(list).([]any), nil
}

// dropUnset removes fields of objects that are null, 0 or "".
func dropUnset(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			switch field {
			case nil, "", int64(0):
				delete(value, name)
			default:
				value[name] = dropUnset(field)
			}
		}
	case []any:
		for i := range value {
			value[i] = dropUnset(value[i])
		}
	}
	return value
}

// remove deletes a CiliumBGPNodeConfig whose node is not selected any more. The API server is asked before: a cache may be
// behind, and the sessions of the node would end.
func (c *controller) remove(ctx context.Context, a action) error {
	selected, err := c.isSelected(ctx, a)
	if err != nil {
		return err
	}
	if selected {
		return errOutdated
	}
	return k8s.Delete(ctx, c.Client, k8s.Ref{Resource: nodeConfigs.Resource(), Name: a.current.Name, UID: a.current.UID.API()})
}

// isSelected reports whether the owner selects the node as the API server has them. One that is gone counts as selecting:
// garbage collection deletes what it owns.
func (c *controller) isSelected(ctx context.Context, a action) (bool, error) {
	ref := k8s.Ref{Resource: clusterConfigs.Resource(), Name: a.owner.Name}
	owner, err := c.Client.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether a node is selected: %w", err)
	}
	var now clusterConfig
	text, err := json.Marshal(owner.Object)
	if err == nil {
		err = json.Unmarshal(text, &now)
	}
	if err != nil {
		return false, fmt.Errorf("decoding %s: %w", ref, err)
	}
	ref = k8s.Ref{Resource: ciliumio.Nodes.Resource(), Name: a.current.Name}
	is, err := c.Client.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking whether a node is selected: %w", err)
	}
	selector := newConfig(&now).selector
	return selector == nil || selector.Matches(slim.MakeLabels(is.GetLabels())), nil
}

// about is what an Event about an object refers to.
func about(apiVersion, kind string, of *slim.Meta) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Name: of.Name, UID: of.UID.API()}
}
