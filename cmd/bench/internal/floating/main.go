// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Floating is the duty of docs/examples/floating with controller-runtime, for a comparison of their size. It has no
// fence, no dry run, no record of writes, and its role is written by hand.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups="",resources=services/status,verbs=update;patch

const finalizer = "fjord.example/address"

var requests = prometheus.NewCounterVec(prometheus.CounterOpts{
	Namespace: "fjord", Subsystem: "floating", Name: "requests_total", Help: "Requests to the address API, by method",
}, []string{"method"})

type reconciler struct {
	client.Client
	api *api
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var svc corev1.Service
	if err := r.Get(ctx, req.NamespacedName, &svc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wanted := svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.DeletionTimestamp.IsZero()
	var err error
	switch {
	case wanted:
		err = r.allocate(ctx, &svc)
	case controllerutil.ContainsFinalizer(&svc, finalizer):
		err = r.release(ctx, &svc)
	}
	var pause *throttled
	if errors.As(err, &pause) {
		return ctrl.Result{RequeueAfter: pause.after}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// allocate adds the finalizer before it asks for the address, so that none is lost.
func (r *reconciler) allocate(ctx context.Context, svc *corev1.Service) error {
	if controllerutil.AddFinalizer(svc, finalizer) {
		if err := r.Update(ctx, svc); err != nil {
			return err
		}
	}
	address, err := r.api.allocate(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	return r.setStatus(ctx, svc, address)
}

func (r *reconciler) release(ctx context.Context, svc *corev1.Service) error {
	if err := r.api.release(ctx, string(svc.UID)); err != nil {
		return err
	}
	if err := r.setStatus(ctx, svc, ""); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(svc, finalizer)
	return r.Update(ctx, svc)
}

func (r *reconciler) setStatus(ctx context.Context, svc *corev1.Service, address string) error {
	before := svc.DeepCopy()
	var ingress []corev1.LoadBalancerIngress
	if address != "" {
		mode := corev1.LoadBalancerIPModeVIP // the default of the API server
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: address, IPMode: &mode})
	}
	svc.Status.LoadBalancer.Ingress = ingress
	if equality.Semantic.DeepEqual(before.Status, svc.Status) {
		return nil
	}
	return r.Status().Patch(ctx, svc, client.MergeFrom(before))
}

// api is the address API: GET, PUT and DELETE /v1/addresses/{uid}. PUT is idempotent.
type api struct {
	url     string
	limiter *rate.Limiter
}

type throttled struct{ after time.Duration }

func (t *throttled) Error() string {
	return fmt.Sprintf("the address API asks for a pause of %s", t.after)
}

func (a *api) allocate(ctx context.Context, uid string) (string, error) {
	var known struct {
		Address string `json:"address"`
	}
	if status, err := a.do(ctx, http.MethodGet, uid, &known); err != nil || status == http.StatusOK {
		return known.Address, err
	}
	_, err := a.do(ctx, http.MethodPut, uid, &known)
	return known.Address, err
}

func (a *api) release(ctx context.Context, uid string) error {
	_, err := a.do(ctx, http.MethodDelete, uid, nil)
	return err
}

// do returns the status of an answer, which is OK or NotFound, and decodes the body into answer.
func (a *api) do(ctx context.Context, method, uid string, answer any) (status int, err error) {
	if err := a.limiter.Wait(ctx); err != nil {
		return 0, err
	}
	requests.WithLabelValues(method).Inc()
	req, err := http.NewRequestWithContext(ctx, method, a.url+"/v1/addresses/"+uid, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return 0, &throttled{time.Duration(max(1, seconds)) * time.Second}
	case resp.StatusCode == http.StatusNotFound && method != http.MethodPut:
		return resp.StatusCode, nil
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s address %s: the API answers %s", method, uid, resp.Status)
	case answer != nil:
		err = json.NewDecoder(resp.Body).Decode(answer)
	}
	return resp.StatusCode, err
}

func run() error {
	url := flag.String("fjord-api", "", "URL of the address API")
	qps := flag.Float64("fjord-qps", 5, "Requests per second to the address API")
	flag.Parse()
	if *url == "" || *qps < 0.1 || *qps > 1000 {
		return errors.New("--fjord-api must be given, and --fjord-qps must be between 0.1 and 1000")
	}
	ctrl.SetLogger(zap.New())
	metrics.Registry.MustRegister(requests)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection: true, LeaderElectionID: "fjord-operator",
		Metrics: server.Options{BindAddress: ":9963"}, HealthProbeBindAddress: ":9234",
	})
	if err != nil {
		return err
	}
	if err := manager.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	r := &reconciler{manager.GetClient(), &api{*url, rate.NewLimiter(rate.Limit(*qps), 20)}}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.Service{}).Complete(r); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
