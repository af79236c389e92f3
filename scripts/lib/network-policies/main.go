// Command network-policies enforces NetworkPolicies in the local cluster's node: it says of the first packet of each connection of a pod whether it may pass.
// The kernel asks it (node_files.FIREWALL). The decisions are those of kube-network-policies; that program itself needs a kernel with CONFIG_NFT_QUEUE.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/florianl/go-nfqueue/v2"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how the API server is reached")
	node := flag.String("node", "", "the name of this node")
	queue := flag.Uint("queue", 0, "the number of the kernel's queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *node, uint16(*queue)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, node string, queue uint16) error {
	engine, err := policies(ctx, kubeconfig, node)
	if err != nil {
		return err
	}
	packets, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      queue,
		MaxPacketLen: 128, // the heads of packets
		MaxQueueLen:  1024,
		Copymode:     nfqueue.NfQnlCopyPacket,
		WriteTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer packets.Close()
	decide := func(asked nfqueue.Attribute) int {
		verdict := nfqueue.NfDrop
		if passes(ctx, engine, asked) {
			verdict = nfqueue.NfAccept
		}
		if err := packets.SetVerdict(*asked.PacketID, verdict); err != nil {
			log.Print("the kernel is not told: ", err)
		}
		return 0
	}
	failed := func(err error) int {
		if ctx.Err() == nil {
			log.Print("the kernel does not ask: ", err)
		}
		return 0
	}
	if err := packets.RegisterWithErrorFunc(ctx, decide, failed); err != nil {
		return err
	}
	log.Print("NetworkPolicies are enforced")
	<-ctx.Done()
	return nil
}

// policies follows the NetworkPolicies, pods and namespaces of the cluster. It returns when all are known.
func policies(ctx context.Context, kubeconfig, node string) (*networkpolicy.PolicyEngine, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	addresses, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}
	provider := podinfo.NewInformerProvider(pods, namespaces, nil, []podinfo.IPResolver{addresses})
	standard := networkpolicy.NewStandardNetworkPolicy(node, namespaces, pods, factory.Networking().V1().NetworkPolicies())
	engine := networkpolicy.NewPolicyEngine(provider, []api.PolicyEvaluator{standard})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return engine, ctx.Err()
}

// passes says what the policies say of a packet. What cannot be read does not pass.
func passes(ctx context.Context, engine *networkpolicy.PolicyEngine, asked nfqueue.Attribute) bool {
	if asked.Payload == nil {
		return false
	}
	packet, err := network.ParsePacket(*asked.Payload)
	if err != nil {
		log.Print("a packet cannot be read: ", err)
		return false
	}
	allowed, err := engine.EvaluatePacket(ctx, &packet)
	if err != nil {
		log.Printf("%s to %s: %v", packet.SrcIP, packet.DstIP, err)
		return false
	}
	return allowed
}
