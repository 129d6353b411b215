// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pods

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	nodeName = "conformance"
	nodeIP   = "127.0.0.1"
)

// kubelet is what the API server asks for the logs of pods.
type kubelet struct {
	server *httptest.Server
	port   int32
}

func (r *Runner) listen() (*kubelet, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", r.serveLog)
	k := &kubelet{server: httptest.NewTLSServer(mux)}
	_, port, err := net.SplitHostPort(k.server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(port, 10, 32)
	k.port = int32(n)
	return k, err
}

func (k *kubelet) close() { k.server.Close() }

func (r *Runner) serveLog(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	p := r.running[req.PathValue("namespace")+"/"+req.PathValue("pod")]
	r.mu.Unlock()
	if p == nil {
		http.NotFound(w, req)
		return
	}
	_, _ = io.WriteString(w, p.log.String())
}

// createNode creates the Node of all pods.
func (r *Runner) createNode(ctx context.Context, port int32) error {
	nodes := r.Client.CoreV1().Nodes()
	n, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n.Status = corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeIP}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}
