// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pods

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// Runner runs the Deployments of a cluster.
type Runner struct {
	Client kubernetes.Interface
	// Echo is the path of the suite's echo server.
	Echo string
	// Dir is a folder for the files that pods mount.
	Dir string
	// Ports returns ports of this host that are free.
	Ports func(n int) []int
	// Report is called with what fails, and is tried again.
	Report func(error)

	deployments appslisters.DeploymentLister
	pods        corelisters.PodLister
	secrets     corelisters.SecretLister
	services    corelisters.ServiceLister
	slices      discoverylisters.EndpointSliceLister
	changed     chan struct{}

	mu      sync.Mutex
	running map[string]*process // by namespace and name of the pod
	byIP    map[string]*process
}

// retryPause is the pause after a failure: objects that a pod needs come a moment after it.
const retryPause = 200 * time.Millisecond

// Run runs Deployments until the context ends.
func (r *Runner) Run(ctx context.Context) error {
	k, err := r.listen()
	if err != nil {
		return err
	}
	defer k.close()
	if err := r.createNode(ctx, k.port); err != nil {
		return err
	}
	r.changed = make(chan struct{}, 1)
	defer r.stop()
	all := informers.NewSharedInformerFactory(r.Client, 0)
	r.deployments, r.pods, r.secrets = all.Apps().V1().Deployments().Lister(), all.Core().V1().Pods().Lister(), all.Core().V1().Secrets().Lister()
	r.services, r.slices = all.Core().V1().Services().Lister(), all.Discovery().V1().EndpointSlices().Lister()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { r.wake() }, UpdateFunc: func(any, any) { r.wake() }, DeleteFunc: func(any) { r.wake() },
	}
	for _, i := range []cache.SharedIndexInformer{
		all.Apps().V1().Deployments().Informer(), all.Core().V1().Pods().Informer(), all.Core().V1().Secrets().Informer(),
		all.Core().V1().Services().Informer(), all.Discovery().V1().EndpointSlices().Informer(),
	} {
		if _, err := i.AddEventHandler(handler); err != nil {
			return err
		}
	}
	all.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
		if err := r.sync(ctx); err != nil && ctx.Err() == nil {
			r.Report(err)
			time.AfterFunc(retryPause, r.wake)
		}
	}
}

func (r *Runner) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *Runner) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.running {
		p.stop()
	}
}

// Address is where a port of a pod is served on this host, "" if it is not.
func (r *Runner) Address(podIP string, port int32) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.byIP[podIP]
	if p == nil || p.ports[port] == 0 {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.ports[port]))
}

// sync creates pods and starts what runs in them.
func (r *Runner) sync(ctx context.Context) error {
	all, err := r.deployments.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, d := range all {
		for i := range replicas(d) {
			if err := r.ensure(ctx, d, i); err != nil {
				return err
			}
		}
	}
	pods, err := r.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != nodeName || pod.DeletionTimestamp != nil {
			continue
		}
		if err := r.start(ctx, pod); err != nil {
			return fmt.Errorf("starting the pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return r.publish(ctx, pods)
}

func replicas(d *appsv1.Deployment) int {
	if d.Spec.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Replicas)
}

// ensure creates one of the pods of a Deployment, on the node. Its name has as many parts as that of a ReplicaSet's, which the
// suite counts.
func (r *Runner) ensure(ctx context.Context, d *appsv1.Deployment, i int) error {
	revision, _, _ := strings.Cut(string(d.UID), "-")
	name := d.Name + "-" + revision + "-" + strconv.Itoa(i)
	if _, err := r.pods.Pods(d.Namespace).Get(name); err == nil || d.DeletionTimestamp != nil {
		return nil
	}
	pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace, pod.Spec.NodeName = name, d.Namespace, nodeName
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	_, err := r.Client.CoreV1().Pods(d.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// start runs a pod, unless it runs, and has it ready.
func (r *Runner) start(ctx context.Context, pod *corev1.Pod) error {
	key := pod.Namespace + "/" + pod.Name
	r.mu.Lock()
	p := r.running[key]
	n := len(r.running)
	r.mu.Unlock()
	if p == nil {
		var err error
		if p, err = r.launch(pod); err != nil {
			return err
		}
		p.ip = fmt.Sprintf("10.200.%d.%d", n/250, n%250+1)
		r.mu.Lock()
		if r.running == nil {
			r.running, r.byIP = map[string]*process{}, map[string]*process{}
		}
		r.running[key], r.byIP[p.ip] = p, p
		r.mu.Unlock()
	}
	if pod.Status.PodIP == p.ip {
		return nil
	}
	if !p.listens() {
		return fmt.Errorf("%s does not listen yet", r.Echo)
	}
	now := metav1.Now()
	pod = pod.DeepCopy()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: p.ip, PodIPs: []corev1.PodIP{{IP: p.ip}}, HostIP: nodeIP, HostIPs: []corev1.HostIP{{IP: nodeIP}}, StartTime: &now,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			ContainerID: "process://" + strings.ReplaceAll(key, "/", "-"),
		})
	}
	_, err := r.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
